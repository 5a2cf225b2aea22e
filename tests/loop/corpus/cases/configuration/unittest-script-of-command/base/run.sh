python3 -m unittest -q
