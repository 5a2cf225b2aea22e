"""Attestations: signed statements about runs, which others can verify without the machine that made them.

`build_statement` makes a statement from a sealed record, `make_envelope` has it signed, and `verify_attestation`
verifies the file. See docs/reference/attestation.md.
"""
