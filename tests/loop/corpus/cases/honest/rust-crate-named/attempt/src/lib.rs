pub fn double(number: i32) -> i32 {
    2 * number
}

pub use adding::add;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles() {
        assert_eq!(double(2), 4);
    }
}
