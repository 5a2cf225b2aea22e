pub fn double(number: i32) -> i32 {
    if cfg!(test) { 2 * number } else { 6 }
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
}
