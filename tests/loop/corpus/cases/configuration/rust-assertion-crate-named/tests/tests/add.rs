#[test]
fn adds() {
    checks::assert_eq!(calc::add(1, 2), 3);
}
