module weft.dev/weft

go 1.26.8
