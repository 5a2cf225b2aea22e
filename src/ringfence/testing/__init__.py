"""What users of ringfence may use in their own tests. Each part is a module; importing this imports none."""
