// Iceberg's REST catalog over a SQLite database, on the loopback alone, for whoever knows the token.
// Arguments: port, token, file of the database, warehouse.

import jakarta.servlet.DispatcherType;
import jakarta.servlet.Filter;
import jakarta.servlet.FilterChain;
import jakarta.servlet.ServletException;
import jakarta.servlet.ServletRequest;
import jakarta.servlet.ServletResponse;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.EnumSet;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.servlet.FilterHolder;
import org.eclipse.jetty.servlet.ServletContextHandler;
import org.eclipse.jetty.servlet.ServletHolder;

public class LoopbackCatalog {
  static class Guard implements Filter {
    private final String expected;

    Guard(String token) {
      this.expected = "Bearer " + token;
    }

    @Override
    public void doFilter(ServletRequest request, ServletResponse response, FilterChain rest)
        throws IOException, ServletException {
      if (expected.equals(((HttpServletRequest) request).getHeader("Authorization"))) {
        rest.doFilter(request, response);
        return;
      }
      HttpServletResponse answer = (HttpServletResponse) response;
      answer.setStatus(401);
      answer.setContentType("application/json");
      answer.getWriter().write(
          "{\"error\": {\"message\": \"wrong token\", \"type\": \"NotAuthorizedException\", \"code\": 401}}");
    }
  }

  public static void main(String[] args) throws Exception {
    Map<String, String> properties = Map.of(
        "catalog-impl", "org.apache.iceberg.jdbc.JdbcCatalog",
        "uri", "jdbc:sqlite:" + args[2] + "?busy_timeout=60000",
        // Two connections to SQLite can hold each other's locks, and then each commit fails.
        "clients", "1",
        "jdbc.schema-version", "V1",
        "warehouse", args[3]);
    Catalog catalog = CatalogUtil.buildIcebergCatalog("backend", properties, new Configuration());
    ServletContextHandler context = new ServletContextHandler(ServletContextHandler.NO_SESSIONS);
    context.addServlet(new ServletHolder(new RESTCatalogServlet(new RESTCatalogAdapter(catalog))), "/*");
    context.addFilter(new FilterHolder(new Guard(args[1])), "/*", EnumSet.of(DispatcherType.REQUEST));
    Server server = new Server(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[0])));
    server.setHandler(context);
    server.start();
    server.join();
  }
}
