package calc

func Add(a, b int) int { return 0 }
