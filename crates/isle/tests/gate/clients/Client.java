// Asks for a page over TLS as programs written in Java do, and prints what it was told.
import java.net.URI;
import java.nio.charset.StandardCharsets;

class Client {
    public static void main(String[] words) throws Exception {
        try (var answer = new URI(words[0]).toURL().openStream()) {
            System.out.print(new String(answer.readAllBytes(), StandardCharsets.UTF_8));
        }
    }
}
