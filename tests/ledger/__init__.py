"""The promises of version 0.1, as the first sentences of its tests, and what became of each.

`ledger.tsv` has one row for each test function of version 0.1:

    file    test    cases    fate    place    sentence

`cases` is the number of its parametrized cases. `fate` is empty while the test stands where it stood. A change that
moves, merges or deletes a test marks its row in the same commit:

- `kept`: the test stands elsewhere; `place` is its new `file::test`.
- `merged`: another test makes the promise as well; `place` is that `file::test`.
- `dropped`: the promise went with a feature; `place` is the feature's name, as the changelog lists it under "Removed".

The checks of this package fail if a test vanished without a mark or a mark names a test that does not exist. The ledger
is deleted when version 0.2 is released.
"""
