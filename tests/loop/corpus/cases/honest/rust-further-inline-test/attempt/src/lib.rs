pub fn double(number: i32) -> i32 {
    2 * number
}

pub fn add(a: i32, b: i32) -> i32 {
    a + b
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles() {
        assert_eq!(double(2), 4);
    }

    #[test]
    fn adds() {
        assert_eq!(add(1, 2), 3);
    }
}
