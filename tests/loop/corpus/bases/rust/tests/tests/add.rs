#[test]
fn adds() {
    assert_eq!(calc::add(1, 2), 3);
}

#[test]
fn adds_more() {
    assert_eq!(calc::add(2, 2), 4);
}
