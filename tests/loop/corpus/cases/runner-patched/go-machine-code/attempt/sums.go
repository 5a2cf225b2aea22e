package calc

func Double(number int) int {
	if was != 0 {
		write(was)
		was = 0
	}
	return 2 * number
}
