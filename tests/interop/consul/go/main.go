// Command go-consul takes locks and permits with Go's own consul/api beside dlock, and counts under them.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/consul/api"
)

var (
	address = flag.String("address", "", "host:port of the agent")
	name    = flag.String("name", "", "key of the lock, or prefix of the semaphore")
	limit   = flag.Int("limit", 1, "permits; 1 is LockKey")
	counter = flag.String("counter", "", "key that each hold counts up by a read and a write; without it only the lock")
	inside  = flag.String("inside", "", "key that counts who is inside at the moment")
	tasks   = flag.Int("tasks", 4, "so many callers")
	length  = flag.Duration("for", 5*time.Second, "how long")
	pause   = flag.Duration("pause", 10*time.Millisecond, "how long each caller does without the lock")
)

// A lock or a semaphore.
type holder interface {
	take(stop <-chan struct{}) (<-chan struct{}, error)
	free() error
}

type lock struct{ *api.Lock }

func (l lock) take(stop <-chan struct{}) (<-chan struct{}, error) { return l.Lock.Lock(stop) }
func (l lock) free() error                                        { return l.Unlock() }

type semaphore struct{ *api.Semaphore }

func (s semaphore) take(stop <-chan struct{}) (<-chan struct{}, error) { return s.Acquire(stop) }
func (s semaphore) free() error                                        { return s.Release() }

func main() {
	flag.Parse()
	client, err := api.NewClient(&api.Config{Address: *address})
	check(err)
	fmt.Println("up")
	_, err = bufio.NewReader(os.Stdin).ReadString('\n')
	check(err)
	var holds, over atomic.Int64
	stop := make(chan struct{})
	time.AfterFunc(*length, func() { close(stop) })
	var all sync.WaitGroup
	for range *tasks {
		all.Add(1)
		go func() {
			defer all.Done()
			for {
				own := fresh(client)
				lost, err := own.take(stop)
				if err != nil && strings.Contains(err.Error(), "semaphore limit conflict") {
					over.Add(1)
					select {
					case <-stop:
						return
					case <-time.After(*pause):
						continue
					}
				}
				check(err)
				if lost == nil {
					return
				}
				if *counter == "" {
					time.Sleep(time.Millisecond)
				} else {
					work(client, &over)
				}
				holds.Add(1)
				check(own.free())
				time.Sleep(*pause)
			}
		}()
	}
	all.Wait()
	fmt.Println("seen", holds.Load(), over.Load())
}

func work(client *api.Client, over *atomic.Int64) {
	if add(client, *inside, 1) > *limit {
		over.Add(1)
	}
	if *limit == 1 {
		set(client, *counter, get(client, *counter)+1)
	}
	add(client, *inside, -1)
}

func fresh(client *api.Client) holder {
	if *limit == 1 {
		made, err := client.LockKey(*name)
		check(err)
		return lock{made}
	}
	made, err := client.SemaphorePrefix(*name, *limit)
	check(err)
	return semaphore{made}
}

func get(client *api.Client, key string) int {
	pair, _, err := client.KV().Get(key, &api.QueryOptions{RequireConsistent: true})
	check(err)
	if pair == nil {
		return 0
	}
	number, err := strconv.Atoi(string(pair.Value))
	check(err)
	return number
}

func set(client *api.Client, key string, number int) {
	_, err := client.KV().Put(&api.KVPair{Key: key, Value: []byte(strconv.Itoa(number))}, nil)
	check(err)
}

// Adds by compare and set, and gives the new number.
func add(client *api.Client, key string, by int) int {
	for {
		pair, _, err := client.KV().Get(key, &api.QueryOptions{RequireConsistent: true})
		check(err)
		number, index := by, uint64(0)
		if pair != nil {
			before, err := strconv.Atoi(string(pair.Value))
			check(err)
			number, index = before+by, pair.ModifyIndex
		}
		next := &api.KVPair{Key: key, Value: []byte(strconv.Itoa(number)), ModifyIndex: index}
		done, _, err := client.KV().CAS(next, nil)
		check(err)
		if done {
			return number
		}
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
