"""Lines of patches are told apart, whoever wrote the patch."""

from ringfence.sandbox.workspace.snapshot.patch import LineClassifier, hunk_start


def test_a_number_that_no_file_has_is_no_heading():
    """A heading with thousands of digits, as only a forged patch has it, is a line like others."""
    line = b"@@ -1,%s +1 @@" % (b"9" * 5000)
    assert hunk_start(line) is None
    assert LineClassifier().classify(line) == "other"


def test_contents_that_look_like_a_patch_are_contents():
    """Within the length of a hunk no line begins another file or hunk."""
    lines = [
        b"diff --git a/x b/x",
        b"@@ -1,2 +1 @@",
        b"-diff --git a/y b/y",
        b"-@@ -1 +1 @@",
        b"+--- a/y",
        b"diff --git a/z b/z",
    ]
    classifier = LineClassifier()
    assert [classifier.classify(line) for line in lines] == ["file", "hunk", *["content"] * 3, "file"]
