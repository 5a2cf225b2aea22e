module example.com/calc

go 1.19

require example.com/adding v0.0.0

replace example.com/adding => ./adding
