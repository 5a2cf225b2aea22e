pub fn check(a: i32, b: i32, total: i32) {
    assert_eq!(calc::add(a, b), total);
}
