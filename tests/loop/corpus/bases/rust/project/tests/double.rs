#[test]
fn doubles() {
    assert_eq!(calc::double(3), 6);
}
