"""What goes wrong for reasons that the user can mend."""


class KittyError(Exception):
    """The message is one line, for the user."""
