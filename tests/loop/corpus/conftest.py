"""The files of the corpus are data: no test of theirs is collected here, and no `conftest.py` is loaded."""

collect_ignore = ["bases", "cases"]
