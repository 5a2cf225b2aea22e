package calc

import "example.com/calc/internal/adding"

func Add(a, b int) int { return adding.Add(a, b) }
