mod deep {
    #[test]
    fn adds() {
        assert_eq!(calc::add(1, 2), 3);
    }

    #[test]
    #[should_panic(expected = "four")]
    fn panics() {
        if calc::add(2, 2) == 4 {
            panic!("four");
        }
    }
}
