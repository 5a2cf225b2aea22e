package calc

func Double(number int) int { return 2 * number }
