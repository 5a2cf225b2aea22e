module example.com/calc

go 1.19

require example.com/check v0.0.0

replace example.com/check => ./fake
