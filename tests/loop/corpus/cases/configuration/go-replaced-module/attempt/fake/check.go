package check

import "testing"

func Equal(t *testing.T, a, b int) {}
