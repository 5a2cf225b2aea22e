"""How results are shown to people: each view has one renderer."""
