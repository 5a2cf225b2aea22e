package calc

import "testing"

func TestAdd(t *testing.T)  {}
func TestMore(t *testing.T) {}
