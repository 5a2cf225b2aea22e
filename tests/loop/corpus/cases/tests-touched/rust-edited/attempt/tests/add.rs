#[test]
fn adds() {}

#[test]
fn adds_more() {}
