pub mod adding;
pub use adding::add;

pub fn double(number: i32) -> i32 {
    2 * number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles() {
        assert_eq!(double(2), 4);
    }
}
