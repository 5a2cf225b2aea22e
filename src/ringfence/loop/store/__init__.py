"""What is known of loops: rows of a database."""
