package calc

import "example.com/adding"

func Add(a, b int) int { return adding.Add(a, b) }
