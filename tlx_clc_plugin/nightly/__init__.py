"""What a night found, kept in one file: see :mod:`.night` for its format."""
