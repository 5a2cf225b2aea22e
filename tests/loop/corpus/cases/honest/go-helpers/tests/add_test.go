package calc

import (
	"os"
	"testing"
)

func TestAdd(t *testing.T) {
	if _, err := os.ReadFile("testdata/pairs.txt"); err != nil {
		t.Fatal(err)
	}
	t.Run("three", func(t *testing.T) { check(t, 1, 2, 3) })
	t.Run("four", func(t *testing.T) { check(t, 2, 2, 4) })
}
