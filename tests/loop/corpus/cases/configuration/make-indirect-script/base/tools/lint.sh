sh tools/before
