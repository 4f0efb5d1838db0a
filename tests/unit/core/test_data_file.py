"""Data beside a module: tables and words."""

from compatcheck.core.data_file import read_data, read_text, read_words


def test_a_table_is_json_beside_the_module(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "labels.json").write_text('{"labels": ["OS"]}')
    assert read_data(str(tmp_path / "module.py"), "labels") == {"labels": ["OS"]}


def test_words_keep_their_order_and_lose_comments(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "names.txt").write_text("# names\nNCCL_* B\nA # last\n")
    assert read_words(str(tmp_path / "module.py"), "names") == ("NCCL_*", "B", "A")


def test_a_table_in_plain_text_is_read_whole(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "table.txt").write_text("# name | meaning\n\na | 1 # 2\n")
    assert read_text(str(tmp_path / "module.py"), "table") == "# name | meaning\n\na | 1 # 2\n"
