Name = str
