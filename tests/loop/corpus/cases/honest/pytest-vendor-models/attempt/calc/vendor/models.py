class Vendor:
    name = ''
