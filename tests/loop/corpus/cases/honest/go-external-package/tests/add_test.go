package calc_test

import (
	"fmt"
	"testing"

	"example.com/calc"
)

func TestAdd(t *testing.T) {
	for _, each := range [][3]int{{1, 2, 3}, {2, 2, 4}} {
		t.Run(fmt.Sprint("sum of ", each), func(t *testing.T) {
			if sum := calc.Add(each[0], each[1]); sum != each[2] {
				t.Fatalf("got %d", sum)
			}
		})
	}
}

func ExampleAdd() {
	fmt.Println(calc.Add(1, 2))
	// Output: 3
}
