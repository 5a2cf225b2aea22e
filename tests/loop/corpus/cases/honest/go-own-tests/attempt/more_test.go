package calc

import "testing"

func TestZero(t *testing.T) {
	if Add(0, 0) != 0 {
		t.Fatal("wrong")
	}
}
