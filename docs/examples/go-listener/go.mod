module example/listener

go 1.19
