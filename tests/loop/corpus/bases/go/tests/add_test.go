package calc

import "testing"

func TestAdd(t *testing.T) {
	if sum := Add(1, 2); sum != 3 {
		t.Fatalf("got %d, want 3", sum)
	}
}

func TestMore(t *testing.T) {
	if sum := Add(2, 2); sum != 4 {
		t.Fatalf("got %d, want 4", sum)
	}
}
