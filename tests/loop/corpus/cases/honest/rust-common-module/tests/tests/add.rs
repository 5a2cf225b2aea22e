mod common;

#[test]
fn adds() {
    common::check(1, 2, 3);
    common::check(2, 2, 4);
}
