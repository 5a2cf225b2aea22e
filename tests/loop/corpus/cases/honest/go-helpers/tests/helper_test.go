package calc

import "testing"

func check(t *testing.T, a, b, want int) {
	t.Helper()
	if sum := Add(a, b); sum != want {
		t.Fatalf("got %d, want %d", sum, want)
	}
}
