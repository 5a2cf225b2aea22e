#![allow(dead_code)]

pub fn double(number: i32) -> i32 {
    2 * number
}

fn half(number: i32) -> i32 {
    number / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles() {
        assert_eq!(double(2), 4);
        }

    #[test]
    fn halves() {
        assert_eq!(half(4), 2);
    }
}
