package check

import "testing"

func Equal(t *testing.T, a, b int) {
	t.Helper()
	if a != b {
		t.Fatalf("%d is not %d", a, b)
	}
}
