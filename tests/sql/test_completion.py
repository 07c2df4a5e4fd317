from penstock.sql.completion import candidates
from penstock.sql.session import SqlSession


def test_tables_columns_keywords_and_functions_are_completed():
    session = SqlSession()
    session.execute("CREATE TABLE bids (auction BIGINT, price INT) WITH ('connector' = 'datagen')")
    assert "auction" in list(candidates(session.catalog, "au"))
    assert next(candidates(session.catalog, "BI")) == "bids"
    assert "SELECT" in list(candidates(session.catalog, "sel"))
    assert "SUBSTRING" in list(candidates(session.catalog, "subs"))
