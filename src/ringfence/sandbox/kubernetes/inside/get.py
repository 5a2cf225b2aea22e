"""Packs a directory to stdout as a tar file: `get PARENT NAME`.

Its contents are an agent's, all of whose processes are dead. Links are not followed; files and directories that are
closed to their owner are opened; anything but files, directories and links is left out.
"""

import os
import sys
import tarfile
from pathlib import Path

os.chdir(sys.argv[1])
top = Path(sys.argv[2])
waiting = [top]
with tarfile.open(
    fileobj=sys.stdout.buffer,
    mode="w|",
    bufsize=1 << 20,
    format=tarfile.GNU_FORMAT,
    encoding="utf-8",
    errors="surrogateescape",
) as tar:
    while waiting:
        path = waiting.pop()
        info = tar.gettarinfo(str(path))
        if info is None:
            continue
        needed = 0o400 if info.isreg() else 0o500 if info.isdir() else 0
        if info.mode & needed != needed and path != top:
            path.chmod(info.mode | needed)
        if info.isreg():
            with path.open("rb") as file:
                tar.addfile(info, file)
        elif info.isdir() or info.issym() or info.islnk():
            tar.addfile(info)
            if info.isdir():
                waiting += sorted(path.iterdir(), reverse=True)
