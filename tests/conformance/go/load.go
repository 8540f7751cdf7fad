package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

const (
	pause    = 200 * time.Millisecond
	draining = 90 * time.Second
	settling = 2 * time.Second
)

// load sends numbers and completes them, with one client, until standard input ends; then it waits
// for what was accepted, as long as something comes. What a number cost in attempts is not counted: a send whose answer was lost
// may have been stored, so it is repeated, and one number may come twice.
func (w *world) load(queue string) string {
	client := w.client(connectionString, &azservicebus.ClientOptions{
		RetryOptions: azservicebus.RetryOptions{MaxRetries: 2, RetryDelay: pause, MaxRetryDelay: time.Second},
	})
	sender := must(client.NewSender(queue, nil))
	receiver := must(client.NewReceiverForQueue(queue, nil))
	stop, accepted := make(chan struct{}), make(chan int, 1)
	go func() { _, _ = io.Copy(io.Discard, os.Stdin); close(stop) }()
	go func() { accepted <- w.sendUntil(sender, stop) }()

	completed, returned, wanted := map[int64]bool{}, 0, -1
	numbers, isEmpty := map[int]bool{}, false
	var deadline time.Time
	for wanted < 0 || len(numbers) < wanted || !isEmpty {
		select {
		case wanted = <-accepted:
			deadline = time.Now().Add(draining)
			continue
		default:
		}
		if wanted >= 0 && time.Now().After(deadline) {
			panic(failure{fmt.Sprintf("%d of %d accepted messages are lost", wanted-len(numbers), wanted)})
		}
		found := w.someOf(receiver)
		isEmpty = len(found) == 0
		if !isEmpty {
			deadline = time.Now().Add(draining)
		}
		for _, message := range found {
			numbers[must(strconv.Atoi(string(message.Body)))] = true
			if completed[*message.SequenceNumber] {
				returned++
			}
			// A message whose link is gone cannot be completed, nor can the rest of its page. The SDK
			// tries for half a minute each, and at each attempt gives up the connection that works.
			ctx, cancel := context.WithTimeout(w.ctx, settling)
			err := receiver.CompleteMessage(ctx, message, nil)
			cancel()
			if err != nil {
				break
			}
			completed[*message.SequenceNumber] = true
		}
	}
	same("completed messages that returned", returned, 0)
	return "nothing accepted was lost, nothing completed returned, one client throughout"
}

// sendUntil returns how many numbers were accepted.
func (w *world) sendUntil(sender *azservicebus.Sender, stop chan struct{}) int {
	for number := 0; ; {
		select {
		case <-stop:
			return number
		case <-w.ctx.Done():
			return number
		case <-time.After(20 * time.Millisecond):
		}
		ctx, cancel := context.WithTimeout(w.ctx, 10*time.Second)
		if sender.SendMessage(ctx, text(strconv.Itoa(number)), nil) == nil {
			number++
		} else {
			time.Sleep(pause)
		}
		cancel()
	}
}

func (w *world) someOf(receiver *azservicebus.Receiver) []*azservicebus.ReceivedMessage {
	// Long enough to connect again on a busy machine: what is cut short is begun from the start.
	ctx, cancel := context.WithTimeout(w.ctx, 5*time.Second)
	defer cancel()
	found, err := receiver.ReceiveMessages(ctx, 20, nil)
	if err != nil && w.ctx.Err() == nil && ctx.Err() == nil {
		time.Sleep(pause)
	}
	return found
}
