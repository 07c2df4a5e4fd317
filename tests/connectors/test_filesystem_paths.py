from pathlib import Path

from penstock.connectors.filesystem.paths import LocalFiles


def test_a_file_that_moves_while_it_is_listed_is_passed_over(tmp_path, monkeypatch):
    """As when one subtask sweeps while another commits."""
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(name)
    is_file = Path.is_file

    def moved_behind_us(path):
        answer = is_file(path)
        if path.name == "b":
            path.unlink()
        return answer

    monkeypatch.setattr(Path, "is_file", moved_behind_us)
    assert [info.path for info in LocalFiles().list(str(tmp_path))] == [
        str(tmp_path / "a"), str(tmp_path / "c"),
    ]  # fmt: skip
