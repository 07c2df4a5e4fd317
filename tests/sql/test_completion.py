import re
from pathlib import Path

import penstock.sql
from penstock.sql.completion import KEYWORDS, candidates
from penstock.sql.session import SqlSession


def test_tables_columns_keywords_and_functions_are_completed():
    session = SqlSession()
    session.execute("CREATE TABLE bids (auction BIGINT, price INT) WITH ('connector' = 'datagen')")
    assert "auction" in list(candidates(session.catalog, "au"))
    assert next(candidates(session.catalog, "BI")) == "bids"
    assert "SELECT" in list(candidates(session.catalog, "sel"))
    assert "SUBSTRING" in list(candidates(session.catalog, "subs"))


def test_each_word_that_the_parser_looks_for_is_completed():
    texts = "".join(file.read_text() for file in Path(penstock.sql.__file__).parent.glob("*.py"))
    calls = re.findall(r"_(?:match_text_seq|match_texts)\(([^()]*)\)", texts)
    words = {
        word for call in calls for text in re.findall(r'"([A-Z][A-Z_ ]+)"', call) for word in text.split()
    }
    assert len(words) > 50
    assert words - set(KEYWORDS) == set()
    assert len(KEYWORDS) == len(set(KEYWORDS))
