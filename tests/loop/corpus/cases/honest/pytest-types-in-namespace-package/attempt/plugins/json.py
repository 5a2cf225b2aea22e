NAMES = ()
