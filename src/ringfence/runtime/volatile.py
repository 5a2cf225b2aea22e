"""What commands print differently each time though they did the same: durations, addresses and so on.

Plain numbers, plain times of day (`09:00`) and hashes stay: they are what most differences are about. No pattern
reaches over the end of a line, so that what is masked has as many lines as before.
"""

import re

_CLOCK = r"\d\d?:\d\d(?::\d\d(?:[.,]\d+)?)?"
_WEEKDAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_ZONE = r"(?:Z|[ ]?[+-]\d\d:?\d\d(?!\d))?"
_NAMED_ZONE = r"(?:[ ][A-Z]{2,5}|[ ][+-]\d{2,4})"
_DATE = rf"(?:{_MONTH}[ ]+\d\d?|\d\d?[ ]+{_MONTH}(?:[ ]+\d{{4}})?)"
_DAY = r"(?:19|20)\d\d-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])"
_LISTED_TIME = rf"(?:{_DAY}(?:[ ]+{_CLOCK}{_ZONE})?|{_MONTH}[ ]+\d\d?[ ]+(?:{_CLOCK}|\d{{4}}))"
"""As `ls -l` prints it, in the C locale and with `--time-style`."""
_OWNERS = r"[ ]+(\S+)[ ]+(\S+)[ ]+"
_SIZE = r"([\d, ]{1,24}?)"
_RIGHTS = r"[rwxsStT-]"

_MASKS = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        # Of a file, a checkpoint keeps the owner's rights; of a directory, size and links are the file system's.
        (rf"(?<![\w-])d{_RIGHTS}{{9}}[.+@]?[ ]+\d+{_OWNERS}\d+[ ]+{_LISTED_TIME}", r"d \1 \2 <listed>"),
        (
            rf"(?<![\w-])([-lbcps])({_RIGHTS}{{3}}){_RIGHTS}{{6}}[.+@]?[ ]+(\d+){_OWNERS}{_SIZE}[ ]+{_LISTED_TIME}",
            r"\1\2 \3 \4 \5 \6 <listed>",
        ),
        (
            rf"\btotal [\d.,]+[KMGT]?(?=\n[-dlbcps]{_RIGHTS}{{9}}|\n[dlbcps-] \S+ \S+ <listed>)",
            "total <blocks>",
        ),
        # `stat`
        (r"\b(Device: )\S+([ \t]+Inode: )\d+", r"\1<device>\2<inode>"),
        # `date`, in its orders, also as git has it.
        (
            rf"\b{_WEEKDAY},?[ ]+{_DATE},?[ ]+{_CLOCK}(?:[ ][AP]M)?{_NAMED_ZONE}?(?:[ ]\d{{4}})?(?:[ ][+-]\d{{4}})?",
            "<time>",
        ),
        (rf"\b\d\d?[ ]+{_MONTH}[ ]+\d{{4}}(?:[ ]+{_CLOCK})?", "<time>"),
        (rf"\b{_DAY}[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?{_ZONE}", "<time>"),
        (rf"\b{_DAY}\b", "<day>"),
        # A commit has the time in it.
        (r"\bcommit [0-9a-f]{40}(?:[0-9a-f]{24})?\b", "commit <commit>"),
        (r"(\[[^\s\]\[]{1,200}(?: \(root-commit\))?) [0-9a-f]{7,40}\]", r"\1 <commit>]"),
        (r"\bHEAD is now at [0-9a-f]{7,40}\b", "HEAD is now at <commit>"),
        # `time`, of bash, of POSIX and of GNU; `uptime`.
        (r"\b(?:real|user|sys)[ \t]+(?:\d+m)?\d+[.,]\d+s?\b", "<duration>"),
        (r"(?<![\d.])[\d.]+user [\d.]+system [\d:.]+elapsed .*", "<duration>"),
        (r"\b\d+inputs\+\d+outputs \(.*", "<use>"),
        (r"\bup [\w ,:]{1,40} user.{0,20}load average: [\d., ]+", "<uptime>"),
        # `ps`, with and without its users, and what shells and kill say of a process.
        (
            r"[ ]{0,12}\b\d+[ ]+[\d.]+[ ]+[\d.]+[ ]+\d+[ ]+\d+[ ]+(\?|pts/\d+)[ ]+(\S+)[ ]+\S+[ ]+\d+:\d\d\b",
            r" <process> \1 \2",
        ),
        (r"[ ]{0,12}\b\d+[ ]+(?=(?:\?|pts/\d+)[ ]+\d\d:\d\d:\d\d\b)", "<process> "),
        (
            r"(\bline \d+:)[ ]+\d+[ ]+(?=Killed|Terminated|Aborted|Hangup|Segmentation|Bus error|Quit)",
            r"\1 <process> ",
        ),
        (r"\(\d+\) - No such process", "(<process>) - No such process"),
        (r"""\b[Pp][Ii][Dd]["']?[ =:]+\d+""", "<process>"),
        (r"\b\d\d:\d\d:\d\d(?:[.,]\d+)?\b", "<time>"),
        (r"\b\d+:\d\d:\d\d[.,]\d+\b", "<duration>"),
        (r"\b(?:\d+h ?)?\d+m ?\d+(?:\.\d+)?s\b", "<duration>"),
        (r"\b\d+(?:\.\d+)? ?(?:ns|us|µs|ms|s|secs?|seconds?)\b", "<duration>"),
        (
            r"""(?i)\b(duration|elapsed|took|time)((?:_m?s)?["']?[ ]*(?:[:=][ ]*)?)\d+\.\d+\b""",
            r"\1\2<duration>",
        ),
        (r"\b0x[0-9a-fA-F]{6,16}\b", "<address>"),
        # Of mktemp, of Python's tempfile and of pytest.
        (r"(?<=/)tmp(?:\.[A-Za-z0-9]{10}|[a-z0-9_]{8})(?![\w.-])", "<temporary>"),
        (r"/tmp/(?:tmp[\w-]{6,12}|pytest-of-[\w-]+/pytest-\d+)", "<temporary>"),  # noqa: S108 - a pattern
        # A rule drawn to the width of the screen is as long as the duration in it leaves room for.
        (r"={3,}", "==="),
        (r"-{3,}", "---"),
    )
)


def masked(text: str) -> str:
    """`text` with everything volatile replaced by a name for it, line by line.

    Line ends and tabs may be spelled as in JSON, as in the results of `shell`.
    """
    text = text.replace("\\n", "\n").replace("\\t", "\t")
    for pattern, name in _MASKS:
        text = pattern.sub(name, text)
    return text
