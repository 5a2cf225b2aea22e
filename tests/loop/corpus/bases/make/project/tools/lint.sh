python3 -m compileall -q calc
